// SPDX-License-Identifier: GPL-2.0

//! `zbdctl list`.

use crate::failure::Result;
use crate::output::{table, Output};
use crate::size::human;
use crate::sysfs::{Sysfs, Volume};
use serde::Serialize;

#[derive(Serialize)]
struct Listed {
    volume: String,
    device: String,
    label: String,
    uuid: String,
    codec: String,
    state: String,
    logical_bytes: u64,
    mapped_bytes: u64,
    used_bytes: u64,
    ratio: f64,
}

impl From<&Volume> for Listed {
    fn from(volume: &Volume) -> Listed {
        let text = |name| volume.get(name).to_string();
        Listed {
            volume: volume.name.clone(),
            device: text("device"),
            label: text("label"),
            uuid: text("uuid"),
            codec: text("codec"),
            state: text("state"),
            logical_bytes: volume.number("logical_bytes"),
            mapped_bytes: volume.number("mapped_bytes"),
            used_bytes: volume.number("used_bytes"),
            ratio: volume.ratio("ratio"),
        }
    }
}

pub fn run(sysfs: &Sysfs, out: &mut Output) -> Result {
    let listed: Vec<Listed> = sysfs.volumes()?.iter().map(Listed::from).collect();
    let head = [
        "VOLUME", "DEVICE", "SIZE", "DATA", "USED", "RATIO", "CODEC", "STATE", "LABEL", "UUID",
    ];
    out.record(&listed, || {
        let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
        table(&head, &rows)
    })
}

fn row(volume: &Listed) -> Vec<String> {
    vec![
        volume.volume.clone(),
        volume.device.clone(),
        human(volume.logical_bytes),
        human(volume.mapped_bytes),
        human(volume.used_bytes),
        format!("{:.2}", volume.ratio),
        volume.codec.clone(),
        volume.state.clone(),
        volume.label.clone(),
        volume.uuid.clone(),
    ]
}
