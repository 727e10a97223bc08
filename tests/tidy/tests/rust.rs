// SPDX-License-Identifier: GPL-2.0

//! Where which kind of Rust may stand.

use zbd_tidy::{code, code_without_tests, has_word, none, rust_below, Source};

/// Lines of code that have one of `words`.
fn lines_with(source: &Source, code: &str, words: &[&str]) -> Vec<String> {
    let lines = code.lines().zip(source.text.lines()).enumerate();
    let found = lines.filter(|(_, (code, _))| words.iter().any(|word| has_word(code, word)));
    found
        .map(|(at, (_, line))| format!("{}:{}: {}", source.path, at + 1, line.trim()))
        .collect()
}

#[test]
fn unsafe_code_and_bindings_are_in_rust_linux_only() {
    let mut wrong = Vec::new();
    for source in rust_below("") {
        if !source.path.starts_with("rust/linux/") {
            let code = code(&source.text);
            let code: String = code
                .lines()
                .map(|line| {
                    // Lints about unsafe code are welcome.
                    if line.contains("unsafe_code") {
                        "\n".into()
                    } else {
                        format!("{line}\n")
                    }
                })
                .collect();
            wrong.extend(lines_with(&source, &code, &["unsafe", "bindings::"]));
        }
    }
    none("unsafe or bindings:: outside rust/linux", &wrong);
}

#[test]
fn the_engine_is_pure() {
    let mut wrong = Vec::new();
    let words = [
        "kernel::",
        "std::",
        "alloc::",
        "Instant",
        "SystemTime",
        "HashMap",
        "HashSet",
        "f32",
        "f64",
        "AtomicU64",
        "AtomicUsize",
        "Mutex",
        "static mut",
        "thread_local!",
    ];
    for source in rust_below("rust/engine/") {
        wrong.extend(lines_with(
            &source,
            &code_without_tests(&source.text),
            &words,
        ));
    }
    none(
        "the engine knows no kernel, clock, thread, float or order of hashes",
        &wrong,
    );
}

#[test]
fn the_engine_does_not_panic() {
    let mut wrong = Vec::new();
    let words = [
        ".unwrap()",
        ".expect(",
        ".unwrap_err()",
        "panic!",
        "todo!",
        "unimplemented!",
        "unreachable!",
        "assert!",
        "assert_eq!",
        "assert_ne!",
    ];
    for source in rust_below("rust/engine/") {
        let code = code_without_tests(&source.text);
        wrong.extend(lines_with(&source, &code, &words));
        wrong.extend(indexing(&source, &code));
    }
    none("the engine must not panic", &wrong);
}

/// Places that index by a value that is not a number in the source. A number into an array is
/// checked by the compiler.
fn indexing(source: &Source, code: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, line) in code.lines().enumerate() {
        let chars: Vec<char> = line.chars().collect();
        let opens = (1..chars.len()).filter(|i| chars[*i] == '[');
        let indexes = opens.filter(|i| {
            let before = chars[*i - 1];
            let inner: String = chars[i + 1..].iter().take_while(|c| **c != ']').collect();
            let fixed = !inner.is_empty() && inner.chars().all(|c| c.is_ascii_digit() || c == '.');
            (before.is_alphanumeric() || matches!(before, '_' | ')' | ']')) && !fixed
        });
        if indexes.count() > 0 {
            wrong.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
        }
    }
    wrong
}

#[test]
fn indexing_is_told_from_other_brackets() {
    let source = Source {
        path: "x".into(),
        text: String::new(),
    };
    for line in ["words[at]", "f()[..n]", "a[0][i]", "x[]"] {
        assert_eq!(indexing(&source, line).len(), 1, "{line}");
    }
    for line in [
        "raw[4]",
        "fixed[48..64]",
        "[0; 4]",
        "&[u8]",
        "#[test]",
        "let [a, b] = x",
        "vec![1]",
    ] {
        assert_eq!(indexing(&source, line).len(), 0, "{line}");
    }
}
