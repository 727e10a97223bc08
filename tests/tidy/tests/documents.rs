// SPDX-License-Identifier: GPL-2.0

//! Rules for what people read.

use std::collections::BTreeSet;
use zbd_tidy::{code, none, read, rust_below, sources, top};

const ABI: &str = "Documentation/ABI/testing/";

/// Lines of a Markdown file that are not in a code block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

#[test]
fn every_document_has_one_title() {
    let mut wrong = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| source.path.ends_with(".md"))
    {
        let titles = prose(&source.text)
            .filter(|line| line.starts_with("# "))
            .count();
        if titles != 1 || !source.text.starts_with("# ") {
            wrong.push(format!("{}: {titles} titles", source.path));
        }
    }
    none("one title, in the first line", &wrong);
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| source.path.ends_with(".md"))
    {
        let directory = top().join(&source.path);
        for line in prose(&source.text) {
            for part in line.split("](").skip(1) {
                let target = part.split([')', '#']).next().unwrap_or("");
                let outside = target.contains("://") || target.is_empty();
                if !outside && !directory.with_file_name(target).exists() {
                    wrong.push(format!("{}: {target}", source.path));
                }
            }
        }
    }
    none("links to files that are not there", &wrong);
}

/// The names behind `prefix` in the `What:` lines of the ABI documents.
fn documented(prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources()
        .iter()
        .filter(|source| source.path.starts_with(ABI))
    {
        for line in source.text.lines() {
            let what = line.strip_prefix("What:").map(str::trim);
            let rest = what.and_then(|what| what.strip_prefix(prefix));
            if let Some((_, name)) = rest.and_then(|rest| rest.rsplit_once('/')) {
                names.insert(name.to_string());
            }
        }
    }
    names
}

/// The names in the attribute tables of a file of the driver.
fn attributes(file: &str) -> BTreeSet<String> {
    let sources = rust_below("rust/driver/");
    let source = sources.iter().find(|source| source.path.ends_with(file));
    let text = &source
        .unwrap_or_else(|| panic!("no rust/driver/{file}"))
        .text;
    let named = ["name: c\"", "number!(c\""]
        .iter()
        .flat_map(|start| text.split(start).skip(1));
    let names = named.filter_map(|rest| Some(rest.split_once('"')?.0.to_string()));
    names.collect()
}

fn compare(prefix: &str, file: &str) {
    let (documented, there) = (documented(prefix), attributes(file));
    assert!(
        !there.is_empty(),
        "no attributes found in rust/driver/{file}"
    );
    let missing = there
        .difference(&documented)
        .map(|name| format!("{name}: not documented"));
    let gone = documented
        .difference(&there)
        .map(|name| format!("{name}: documented, not there"));
    none(
        &format!("{prefix} and {ABI}"),
        &missing.chain(gone).collect::<Vec<_>>(),
    );
}

#[test]
fn every_attribute_of_a_disk_is_documented() {
    compare("/sys/block/zbd", "attributes.rs");
}

#[test]
fn every_control_file_is_documented() {
    compare("/sys/class/zbd-control", "control.rs");
}

#[test]
fn every_planted_bug_stands_beside_its_rule() {
    let code = code(&read("rust/engine/planted.rs"));
    let (_, body) = code.split_once("enum Bug").expect("the list of bugs");
    let (body, _) = body.split_once('}').expect("its end");
    let names = body
        .split([',', '{'])
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let design = read("Documentation/design.md");
    let missing = names.filter(|name| !design.contains(&format!("`{name}`")));
    none(
        "bugs that Documentation/design.md lacks",
        &missing.map(String::from).collect::<Vec<_>>(),
    );
}
