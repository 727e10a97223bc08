// SPDX-License-Identifier: GPL-2.0

//! House rules that code can check: the rules are the tests in `tests/`, here is what they share.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository.
pub struct Source {
    /// Path from the top, with slashes.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// The top of the repository.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("a checkout")
}

/// Reads a file, named from the top.
pub fn read(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every text file that people wrote.
pub fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    collect(&top(), "", &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 50, "this is not the whole checkout");
    found
}

/// The Rust files below a directory.
pub fn rust_below(directory: &str) -> Vec<Source> {
    let mut sources = sources();
    sources.retain(|source| source.path.starts_with(directory) && source.path.ends_with(".rs"));
    assert!(!sources.is_empty(), "{directory} has no Rust files");
    sources
}

fn collect(directory: &Path, prefix: &str, found: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).expect("readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() && !is_output(&name) {
            collect(&entry.path(), &format!("{path}/"), found);
        } else if kind.is_file() && !is_generated(&name) {
            // What is not text is not ours to check.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                found.push(Source { path, text });
            }
        }
    }
}

fn is_output(name: &str) -> bool {
    matches!(name, ".git" | "target" | "golden") || name.starts_with("out-")
}

fn is_generated(name: &str) -> bool {
    let suffixes = [
        ".lock",
        ".cmd",
        ".d",
        ".o",
        ".ko",
        ".mod",
        ".mod.c",
        ".order",
        ".symvers",
        "~",
        ".swp",
        ".rmeta",
        ".proptest-regressions",
    ];
    name.contains("_generated.")
        || name == "LICENSE"
        || suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// Rust text without comments and without the contents of strings; lines stay where they are.
pub fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut here = 0;
    while here < chars.len() {
        let end = match (at(here), at(here + 1)) {
            ('/', '/') => (here..chars.len())
                .find(|i| chars[*i] == '\n')
                .unwrap_or(chars.len()),
            ('/', '*') => end_of_comment(&chars, here),
            ('"', _) => end_of_string(&chars, here),
            ('r', '"' | '#') if !is_word(at(here.wrapping_sub(1))) => end_of_raw(&chars, here),
            ('\'', '\\') => {
                (here + 3..chars.len())
                    .find(|i| chars[*i] == '\'')
                    .unwrap_or(here)
                    + 1
            }
            ('\'', _) if at(here + 2) == '\'' => here + 3,
            _ => {
                out.push(chars[here]);
                here += 1;
                continue;
            }
        };
        out.push(' ');
        out.extend(chars[here..end].iter().filter(|c| **c == '\n'));
        here = end.max(here + 1);
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn end_of_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut here = start;
    while here + 1 < chars.len() {
        match (chars[here], chars[here + 1]) {
            ('/', '*') => (depth, here) = (depth + 1, here + 2),
            ('*', '/') => (depth, here) = (depth - 1, here + 2),
            _ => here += 1,
        }
        if depth == 0 {
            return here;
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut here = start + 1;
    while here < chars.len() {
        match chars[here] {
            '\\' => here += 2,
            '"' => return here + 1,
            _ => here += 1,
        }
    }
    chars.len()
}

fn end_of_raw(chars: &[char], start: usize) -> usize {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(start + 1 + hashes) != Some(&'"') {
        return start + 1;
    }
    let mut here = start + 2 + hashes;
    while here < chars.len() {
        let closed = chars[here] == '"'
            && chars[here + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes;
        if closed {
            return here + 1 + hashes;
        }
        here += 1;
    }
    chars.len()
}

/// What [`code`] answers, without the items behind `#[cfg(test)]`.
pub fn code_without_tests(text: &str) -> String {
    let mut rest = code(text);
    let mut out = String::new();
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let item = rest[at..].to_string();
        let end = end_of_item(&item);
        out.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = item[end..].to_string();
    }
    out + &rest
}

fn end_of_item(item: &str) -> usize {
    let mut depth = 0;
    for (at, c) in item.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(c, '}' | ';') {
            return at + 1;
        }
    }
    item.len()
}

/// Whether `word` stands in `line` as a word of its own.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().unwrap_or(' ');
        let after = line[at + word.len()..].chars().next().unwrap_or(' ');
        let open = |edge: Option<char>, next: char| !edge.is_some_and(is_word) || !is_word(next);
        open(word.chars().next(), before) && open(word.chars().next_back(), after)
    })
}

/// Fails with the list of what is wrong, if anything is.
pub fn none(rule: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{rule}:\n  {}\n", wrong.join("\n  "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        let text =
            "a // unsafe\nb /* x /* y */ \n unsafe */ c \"un\\\"safe\" r#\"d\"# '\\'' 'x' fn<'a>()";
        let code = code(text);
        assert!(!has_word(&code, "unsafe"), "{code}");
        assert_eq!(code.lines().count(), 3);
        for kept in ["a", "b", "c", "fn<'a>()"] {
            assert!(code.contains(kept), "{kept}");
        }
    }

    #[test]
    fn tests_are_left_out() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { x.unwrap() }\n}\nfn c() {}\n";
        let code = code_without_tests(text);
        assert!(!code.contains("unwrap"));
        assert!(code.contains("fn c"));
        assert_eq!(code.lines().count(), 6);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("x.unwrap()", ".unwrap()"));
        assert!(has_word("std::mem", "std::"));
        assert!(!has_word("xstd::mem", "std::"));
        assert!(!has_word("unsafe_code", "unsafe"));
    }
}
