// SPDX-License-Identifier: GPL-2.0

//! The engine's memory on the host.

/// A growable array.
pub type Vec<T> = std::vec::Vec<T>;

/// A value in memory of its own.
pub type Box<T> = std::boxed::Box<T>;

/// Memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

/// Moves `value` into memory of its own.
///
/// # Errors
///
/// None on the host, where a failed allocation of this size ends the process.
pub fn try_box<T>(value: T) -> Result<Box<T>, AllocError> {
    Ok(Box::new(value))
}

/// An array of `count` copies of `value`.
///
/// # Errors
///
/// [`AllocError`].
pub fn try_vec<T: Clone>(count: usize, value: T) -> Result<Vec<T>, AllocError> {
    let mut items = Vec::new();
    items.try_reserve_exact(count).map_err(|_| AllocError)?;
    items.resize(count, value);
    Ok(items)
}

/// Appends `value`.
///
/// # Errors
///
/// [`AllocError`].
pub fn try_push<T>(items: &mut Vec<T>, value: T) -> Result<(), AllocError> {
    items.try_reserve(1).map_err(|_| AllocError)?;
    items.push(value);
    Ok(())
}
