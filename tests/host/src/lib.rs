// SPDX-License-Identifier: GPL-2.0

//! A model disk that crashes, a driver twin that performs the engine's actions in any order, and a
//! reference model of what may be read.

pub mod disk;
pub mod explore;
pub mod reference;
pub mod rng;
pub mod scan;
pub mod workload;
pub mod world;
