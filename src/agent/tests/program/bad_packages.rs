//! Packages that escape their folder, exceed limits, or are not packages.

use super::*;
use crate::protocol::application::ProgramErrorKind;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A tar.gz with entry names and links exactly as given, which no honest tool would write.
fn tar(entries: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, kind, target, content) in entries {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000755");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[148..156].copy_from_slice(b"        ");
        header[156] = *kind;
        header[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&header);
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1_024, 0);
    gz(&tar)
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("written");
    encoder.finish().expect("compressed")
}

const SCRIPT: &[u8] = b"#!/bin/sh\ncat a/link 2>/dev/null; cat hard 2>/dev/null; echo ran\n";

/// Each bad package: its name, its bytes, and the expected error.
fn bad() -> Vec<(&'static str, Vec<u8>, ProgramErrorKind)> {
    use ProgramErrorKind::{PackageFormat, PackageTooLarge, PackageUnsafe};
    let file = |name| tar(&[("run", b'0', "", SCRIPT), (name, b'0', "", b"out")]);
    let link = |target| tar(&[("run", b'0', "", SCRIPT), ("a/link", b'2', target, b"")]);
    let symlink_zip = |target: &str| {
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        writer.add_symlink("link", target, zip::write::SimpleFileOptions::default()).expect("a link");
        writer.finish().expect("a zip").into_inner()
    };
    let zeros = vec![0; 20 << 20];
    let many: Vec<String> = (0..20_001).map(|i| i.to_string()).collect();
    let many: Vec<(&str, u8, &str, &[u8])> = many.iter().map(|name| (name.as_str(), b'0', "", &b""[..])).collect();
    let deep: Vec<String> = (0..1_000).map(|i| format!("{i}/{}", "d/".repeat(30))).collect();
    let deep: Vec<(&str, u8, &str, &[u8])> = deep.iter().map(|name| (name.as_str(), b'5', "", &b""[..])).collect();
    let mut twice = zip(&[("run", 0o755, SCRIPT), ("ruN", 0o755, SCRIPT)]);
    while let Some(at) = twice.windows(3).position(|name| name == b"ruN") {
        twice[at + 2] = b'n';
    }
    let long = vec![b'n'; 4 << 20];
    let headers = |kind| tar(&[("run", b'0', "", SCRIPT), ("remark", kind, "", &long), ("x", b'0', "", b"x")]);
    let whole = zip(&[("run", 0o755, &SCRIPT.repeat(50))]);
    vec![
        ("tar, parent", file("../out"), PackageUnsafe),
        ("tar, absolute", file("/out"), PackageUnsafe),
        ("tar, parent within", file("a/../../out"), PackageUnsafe),
        ("zip, parent", zip(&[("../out", 0o755, b"out")]), PackageUnsafe),
        ("zip, absolute", zip(&[("/out", 0o755, b"out")]), PackageUnsafe),
        ("zip, parent as Windows has it", zip(&[("..\\out", 0o755, b"out")]), PackageUnsafe),
        ("link, absolute", link("/etc/passwd"), PackageUnsafe),
        ("link, parent", link("../../../etc/passwd"), PackageUnsafe),
        ("link, to nothing", link("none"), PackageUnsafe),
        ("zip, link", symlink_zip("/etc/passwd"), PackageUnsafe),
        ("zip, link to parent", symlink_zip("../x"), PackageUnsafe),
        // Each link alone stays inside; the second goes through the first.
        ("links through links", tar(&[("a/b/d", b'2', "../..", b""), ("a/b/e", b'2', "d/..", b"")]), PackageUnsafe),
        ("through a link", tar(&[("d", b'2', "/tmp", b""), ("d/out", b'0', "", b"out")]), PackageUnsafe),
        ("hard link out", tar(&[("hard", b'1', "/etc/passwd", b"")]), PackageUnsafe),
        ("hard link to parent", tar(&[("hard", b'1', "../out", b"")]), PackageUnsafe),
        ("a device", tar(&[("dev", b'3', "", b"")]), PackageUnsafe),
        ("a pipe", tar(&[("pipe", b'6', "", b"")]), PackageUnsafe),
        ("zip bomb", zip(&[("zeros", 0o644, &zeros)]), PackageTooLarge),
        ("tar bomb", tar(&[("zeros", b'0', "", &zeros)]), PackageTooLarge),
        ("a long name", headers(b'L'), PackageTooLarge),
        ("a long target", headers(b'K'), PackageTooLarge),
        ("attributes", headers(b'x'), PackageTooLarge),
        ("remarks on all", headers(b'g'), PackageTooLarge),
        ("a folder with content", headers(b'5'), PackageTooLarge),
        ("too many", tar(&many), PackageTooLarge),
        ("twice", tar(&[("run", b'0', "", SCRIPT), ("run", b'0', "", SCRIPT)]), PackageFormat),
        ("a folder twice", tar(&[("run", b'0', "", SCRIPT), ("d/", b'5', "", b""), ("d", b'5', "", b"")]), PackageFormat),
        ("zip, twice", twice, PackageFormat),
        ("tar, folders on the way", tar(&deep), PackageTooLarge),
        ("file and folder", tar(&[("run", b'0', "", SCRIPT), ("run/x", b'0', "", SCRIPT)]), PackageFormat),
        ("text", b"<html>not found</html>".to_vec(), PackageFormat),
        ("nothing", Vec::new(), PackageFormat),
        ("half a zip", whole[..whole.len() / 2].to_vec(), PackageFormat),
        (
            "half a tar",
            {
                let all = file("x");
                all[..all.len() / 2].to_vec()
            },
            PackageFormat,
        ),
        ("gz of no tar", gz(&[b'x'; 2_000]), PackageFormat),
        (
            "damaged zip",
            {
                let mut bytes = whole;
                bytes[45] ^= 0xff;
                bytes[46] ^= 0xff;
                bytes
            },
            PackageFormat,
        ),
    ]
}

#[actix_rt::test]
async fn each_bad_package_is_refused_for_what_it_is_and_leaves_nothing() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    for (name, bytes, expected) in bad() {
        let site = site(bytes);
        let order = packed("run", &site, None);
        scene.start(&order).await;
        let error = scene.reached(&order, ProgramState::Refused).await.error.expect("why");
        assert_eq!(error.kind, expected, "{name}: {}", error.message);
        scene.is_clean(&order).await;
    }
    let mut names: Vec<_> = scene.data.path().read_dir().expect("there").flatten().map(|e| e.file_name()).collect();
    names.sort();
    assert_eq!(names, ["agent.lock", "instance", "packages", "programs"], "nothing got out");
    scene.end(agent).await;
}

#[actix_rt::test]
async fn good_ones_of_both_kinds_run_with_links_that_stay_within() {
    let scene = Scene::new();
    let agent = Running::start(scene.config());
    let links =
        [("a/link", b'2', "../b/text", &b""[..]), ("b/text", b'0', "", b"linked\n"), ("hard", b'1', "b/text", b""), ("./", b'5', "", b"")];
    let all: Vec<_> = [("./run", b'0', "", SCRIPT)].into_iter().chain(links).collect();
    // A zip of Windows: no permission to execute, and backslashes.
    for (bytes, application, lines) in
        [(tar(&all), "run", &["linked", "linked", "ran"][..]), (zip(&[("sub\\run", 0o644, SCRIPT)]), "sub/run", &["ran"])]
    {
        let site = site(bytes);
        let order = packed(application, &site, None);
        scene.start(&order).await;
        scene.reached(&order, ProgramState::Exited).await;
        assert_eq!(scene.lines(&order, "stdout"), lines);
        scene.is_clean(&order).await;
    }
    scene.end(agent).await;
}
