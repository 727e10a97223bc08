// SPDX-License-Identifier: GPL-2.0

//! The program as people run it: on image files, and on a directory that looks like sysfs.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use zbd_host_tests::world::{Outcome, World};

const BLOCK: usize = 4096;

/// A directory of its own for each test.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Room {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Room(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An empty file.
    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// What looks like sysfs with the module loaded and one volume on `device`.
    fn sysfs(&self, device: &str) -> PathBuf {
        let root = self.path("sys");
        let class = root.join("class/zbd-control");
        fs::create_dir_all(&class).unwrap();
        for file in ["format", "attach", "detach"] {
            fs::write(class.join(file), "").unwrap();
        }
        let attributes = root.join("block/zbd0/zbd");
        fs::create_dir_all(&attributes).unwrap();
        for (name, value) in [
            ("device", device),
            ("uuid", "00112233-4455-6677-8899-aabbccddeeff"),
            ("label", "home"),
            ("codec", "zstd:1"),
            ("state", "ok"),
            ("logical_bytes", "1073741824"),
            ("mapped_bytes", "4096"),
            ("used_bytes", "2048"),
            ("ratio", "200"),
            ("user_bytes", "8192"),
        ] {
            fs::write(attributes.join(name), format!("{value}\n")).unwrap();
        }
        root
    }
}

/// A volume with data, overwrites, zeros and several checkpoints, as an image file.
fn volume(room: &Room, clean: bool) -> PathBuf {
    let mut world = World::new(7, 64, None);
    for step in 0..2000u64 {
        assert_eq!(world.write(step * 7 % 1500), Outcome::Done);
        if step % 500 == 499 {
            world.flush().unwrap();
            world.engine().request_checkpoint();
            world.quiesce();
        }
    }
    assert_eq!(world.zero(100, 50), Outcome::Done);
    if clean {
        world.detach();
    } else {
        world.flush().unwrap();
        world.crash();
    }
    let path = room.file("volume.img", 64 << 20);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for block in world.disk.written() {
        file.write_all_at(&*world.disk.block(block), block * BLOCK as u64)
            .unwrap();
    }
    path
}

fn zbdctl(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zbdctl"));
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a dump; answers its status and records.
fn dump(image: &Path, options: &[&str]) -> (i32, Vec<Value>) {
    let image = image.to_str().unwrap();
    let output = zbdctl(&[&["--json", "dump", image], options].concat());
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    let lines = text(&output.stdout);
    let records = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (output.status.code().unwrap(), records.collect())
}

fn of<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records
        .iter()
        .filter(|record| record["record"] == kind)
        .collect()
}

#[test]
fn a_clean_volume_is_decoded_in_full() {
    let room = Room::new("clean");
    let image = volume(&room, true);
    let (status, records) = dump(&image, &["--all"]);
    assert_eq!(status, 0, "{:?}", of(&records, "damage"));
    let described = of(&records, "volume")[0];
    assert_eq!(described["zones"], 64);
    assert_eq!(described["clean"], true);
    assert_eq!(described["mapped_bytes"], 1450 * 4096);
    assert_eq!(of(&records, "word").len(), 1450);
    assert_eq!(of(&records, "map")[0]["mapped_blocks"], 1450);
    let roots = of(&records, "root");
    assert!(roots
        .iter()
        .any(|root| root["newest"] == true && root["clean"] == true));
    assert!(roots.iter().all(|root| root["in_place"] == true));
    for kind in ["zone", "segment", "entry", "page"] {
        assert!(!of(&records, kind).is_empty(), "{kind}");
    }
    for entry in of(&records, "entry") {
        assert_ne!(entry["intact"], false, "{entry}");
    }
    // Where the map points there is a fragment that says so.
    let entries = of(&records, "entry");
    for word in of(&records, "word") {
        let at = &word["location"];
        let found = entries.iter().any(|entry| {
            entry["zone"] == at["zone"]
                && entry["offset"] == at["offset"]
                && entry["lbn"] == word["lbn"]
        });
        assert!(found, "{word}");
    }
}

#[test]
fn a_crashed_volume_has_a_log_to_replay() {
    let room = Room::new("crashed");
    let image = volume(&room, false);
    let (status, records) = dump(&image, &["--segments"]);
    assert_eq!(status, 0, "{:?}", of(&records, "damage"));
    assert_eq!(of(&records, "volume")[0]["clean"], false);
    assert!(of(&records, "segment")
        .iter()
        .any(|segment| segment["replayable"] == true));
}

#[test]
fn text_is_for_people() {
    let room = Room::new("text");
    let image = volume(&room, true);
    let output = zbdctl(&["dump", image.to_str().unwrap()]);
    let text = text(&output.stdout);
    assert!(
        text.contains("volume 7a62642d-7465-7374-2d76-6f6c756d6521"),
        "{text}"
    );
    assert!(text.ends_with("no damage found\n"), "{text}");
    let all = zbdctl(&["dump", "--all", "--zone", "3", image.to_str().unwrap()]);
    assert!(all.status.success());
}

fn corrupt(image: &Path, address: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(image).unwrap();
    file.write_all_at(bytes, address).unwrap();
}

/// Address of a fragment's payload.
fn address(location: &Value) -> u64 {
    let number = |name: &str| location[name].as_u64().unwrap();
    number("zone") * (1 << 20) + number("offset") * 16 + 20
}

#[test]
fn one_bad_copy_of_metadata_is_damage_but_hides_nothing() {
    let room = Room::new("one-copy");
    let image = volume(&room, true);
    let (_, records) = dump(&image, &["--map"]);
    let page = &of(&records, "page")[1];
    corrupt(&image, address(&page["base"]), b"rot");
    let (status, records) = dump(&image, &["--map"]);
    assert_eq!(status, 6);
    assert_eq!(of(&records, "map")[0]["mapped_blocks"], 1450);
    assert_eq!(of(&records, "end")[0]["damaged"], 1);
}

#[test]
fn the_first_mebibyte_may_be_lost() {
    let room = Room::new("first");
    let image = volume(&room, true);
    corrupt(&image, 0, &[0x55; 1 << 20]);
    let (status, records) = dump(&image, &["--map"]);
    assert_eq!(status, 0);
    assert_eq!(of(&records, "map")[0]["mapped_blocks"], 1450);
}

#[test]
fn a_broken_zone_table_hides_its_zones_only() {
    let room = Room::new("table");
    let image = volume(&room, true);
    let (_, records) = dump(&image, &["--roots"]);
    let roots = of(&records, "root");
    let root = roots.iter().find(|root| root["newest"] == true).unwrap();
    let page = &root["lists"]["table"][0]["location"];
    let zone = page["zone"].as_u64().unwrap();
    let pairs = root["lists"]["mirrors"].as_array().unwrap();
    let pair = pairs.iter().find(|pair| pair[0] == zone).unwrap();
    corrupt(&image, address(page), b"rot");
    corrupt(
        &image,
        address(page) - (zone << 20) + (pair[1].as_u64().unwrap() << 20),
        b"rot",
    );
    let (status, records) = dump(&image, &["--all"]);
    assert_eq!(status, 6);
    assert_eq!(of(&records, "zones")[0]["unknown"], 64);
}

#[test]
fn any_corruption_is_survived() {
    let room = Room::new("any");
    let image = volume(&room, false);
    let pristine = fs::read(&image).unwrap();
    let mut state = 1u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 33
    };
    for round in 0..12 {
        fs::write(&image, &pristine).unwrap();
        for _ in 0..1 << round {
            // Mostly where roots and the first segments are.
            let bound = if next() % 2 == 0 { 64 << 20 } else { 4 << 20 };
            let garbage: Vec<u8> = (0..1 + next() % 64).map(|_| next() as u8).collect();
            corrupt(&image, next() % (bound - 64), &garbage);
        }
        let (status, _) = dump(&image, &["--all"]);
        assert!(matches!(status, 0 | 3 | 6), "status {status}");
    }
    for bytes in [0, 1, 4095, 4096, 1 << 20, (48 << 20) + 17] {
        fs::write(&image, &pristine[..bytes]).unwrap();
        let (status, _) = dump(&image, &["--all"]);
        assert!(matches!(status, 3 | 6), "{bytes} bytes: status {status}");
    }
}

#[test]
fn without_a_volume_there_is_nothing_to_dump() {
    let room = Room::new("nothing");
    let empty = room.file("empty", 64 << 20);
    let output = zbdctl(&["dump", empty.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no zbd volume found"));
    let output = zbdctl(&["dump", "/nonexistent/device"]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn without_the_module_the_message_says_how_to_load_it() {
    let room = Room::new("unloaded");
    let image = room.file("image", 64 << 20);
    let nowhere = room.path("sys");
    fs::create_dir(&nowhere).unwrap();
    let sysfs = nowhere.to_str().unwrap();
    for command in [
        &["create", image.to_str().unwrap()][..],
        &["attach", image.to_str().unwrap()],
        &["detach", "zbd0"],
        &["stat", "zbd0"],
        &["list"],
    ] {
        let output = zbdctl(&[&["--sysfs", sysfs], command].concat());
        assert_eq!(output.status.code(), Some(5), "{command:?}");
        assert!(text(&output.stderr).contains("modprobe zbd"));
    }
    let output = zbdctl(&["--sysfs", sysfs, "--json", "list"]);
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "not_loaded");
}

#[test]
fn create_formats_and_attaches() {
    let room = Room::new("create");
    let image = room.file("image", 64 << 20);
    // The volume that the module would make shows up under the name of the device.
    let sysfs = room.sysfs("another");
    let run = |options: &[&str]| {
        let common = [
            "--sysfs",
            sysfs.to_str().unwrap(),
            "--json",
            "create",
            image.to_str().unwrap(),
        ];
        zbdctl(&[&common, options].concat())
    };
    let written =
        |file: &str| fs::read_to_string(sysfs.join("class/zbd-control").join(file)).unwrap();
    let output = run(&[
        "--no-attach",
        "--codec",
        "zstd:3",
        "--size",
        "1G",
        "--label",
        "home",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = image.canonicalize().unwrap().display().to_string();
    assert_eq!(
        written("format"),
        format!("{shown} codec=zstd:3 size=1073741824 label=home\n")
    );
    assert_eq!(written("attach"), "");
    // Attached, but the fake never shows the disk.
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(written("attach"), format!("{shown}\n"));
}

#[test]
fn create_refuses_what_is_in_use_or_holds_something() {
    let room = Room::new("refuse");
    let image = room.file("image", 64 << 20);
    let sysfs = room.sysfs("image");
    let path = image.to_str().unwrap();
    let create = |options: &[&str]| {
        zbdctl(
            &[
                &[
                    "--sysfs",
                    sysfs.to_str().unwrap(),
                    "create",
                    path,
                    "--no-attach",
                ],
                options,
            ]
            .concat(),
        )
    };
    let output = create(&["--force"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("zbdctl detach zbd0"));
    fs::write(sysfs.join("block/zbd0/zbd/device"), "another\n").unwrap();
    // The magic and a plausible body of an ext2 superblock.
    let mut ext2 = [0u8; 1024];
    ext2[0..4].copy_from_slice(&64u32.to_le_bytes());
    ext2[4..8].copy_from_slice(&65536u32.to_le_bytes());
    ext2[56..58].copy_from_slice(&0xef53u16.to_le_bytes());
    ext2[76..80].copy_from_slice(&1u32.to_le_bytes());
    corrupt(&image, 1024, &ext2);
    let output = create(&[]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--force"));
    assert_eq!(
        fs::read_to_string(sysfs.join("class/zbd-control/format")).unwrap(),
        ""
    );
    let zbd = volume(&room, true);
    let output = zbdctl(&[
        "--sysfs",
        sysfs.to_str().unwrap(),
        "create",
        zbd.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("a zbd volume"));
}

#[test]
fn volumes_are_listed_and_described() {
    let room = Room::new("list");
    let sysfs = room.sysfs("vdb");
    let sysfs = sysfs.to_str().unwrap();
    let list = zbdctl(&["--sysfs", sysfs, "list"]);
    assert!(
        text(&list.stdout).contains("zbd0    vdb     1.00 GiB"),
        "{}",
        text(&list.stdout)
    );
    let list: Value =
        serde_json::from_slice(&zbdctl(&["--sysfs", sysfs, "--json", "list"]).stdout).unwrap();
    assert_eq!(list[0]["ratio"], 2.0);
    let stat: Value =
        serde_json::from_slice(&zbdctl(&["--sysfs", sysfs, "stat", "/dev/zbd0", "--json"]).stdout)
            .unwrap();
    assert_eq!(stat["user_bytes"], 8192);
    let watch = zbdctl(&[
        "--sysfs", sysfs, "stat", "zbd0", "--watch", "0.01", "--count", "2",
    ]);
    assert_eq!(text(&watch.stdout).lines().count(), 3);
    let missing = zbdctl(&["--sysfs", sysfs, "stat", "zbd7"]);
    assert_eq!(missing.status.code(), Some(3));
    let detach = zbdctl(&["--sysfs", sysfs, "detach", "zbd0"]);
    assert!(detach.status.success());
    let line = fs::read_to_string(Path::new(sysfs).join("class/zbd-control/detach")).unwrap();
    assert_eq!(line, "zbd0\n");
}

#[test]
fn help_and_misuse() {
    let help = zbdctl(&["--help"]);
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("Exit status:"));
    for command in ["create", "attach", "detach", "list", "stat", "dump"] {
        assert!(zbdctl(&[command, "--help"]).status.success());
    }
    assert_eq!(zbdctl(&["create"]).status.code(), Some(2));
    assert_eq!(
        zbdctl(&["create", "/dev/x", "--size", "many"])
            .status
            .code(),
        Some(2)
    );
}
