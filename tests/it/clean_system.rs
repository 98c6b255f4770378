//! A new user follows the tutorials on a clean Debian: Python is there, and neither Rust nor a compiler nor this repository.
//!
//! tests/run.sh makes the root folder of that system, and the wheels. The test needs root, to change into that folder.

use crate::documents::{Stage, script};
use crate::support::journey_within;
use crate::support::site::Site;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PAGES: [&str; 3] = ["docs/tutorials/first-crawl.md", "docs/tutorials/first-schedule.md", "docs/tutorials/first-task.md"];

/// The user on the clean system. No such user needs to exist there.
const USER: &str = "1000";

/// Starts the command in a mount namespace and a process namespace of its own, so nothing stays mounted and no process stays. The
/// system is read-only but for the folder `$2`, which is the user's, and a temporary one.
const ENTER: &str = r#"
set -e
root=$1 folder=$2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
shift 2
exec chroot --userspec=USER:USER --groups= "$root" env -i "$@"
"#;

/// The folder of the user, and what must not be there before the first page.
const BEGIN: &str = r#"
cd "$HOME"
[ -d .venv ] || for tool in cargo rustc rustup cc gcc webloom pip; do
    if command -v $tool; then echo "the clean system has $tool"; exit 1; fi
done
"#;

/// Runs a page on the clean system; its output.
fn run(root: &Path, page: &str, stage: &Stage, home: &Path) -> String {
    let script = format!("{BEGIN}{}", script(page, stage));
    let owner = Command::new("chown").args(["-R", &format!("{USER}:{USER}")]).arg(home).status().expect("chown runs");
    assert!(owner.success());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &ENTER.replace("USER", USER), "sh"]);
    command.arg(root).arg(home);
    // There is no package index: what the wheels need is among them.
    command.arg(format!("PATH={}/.venv/bin:/usr/bin:/bin", home.display()));
    command.args(["PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PYTHONUNBUFFERED=1"]);
    command.arg(format!("WEBLOOM_BROKER={}", stage.broker()));
    command.arg(format!("HOME={}", home.display())).arg(format!("LOGS={}", home.join("logs").display()));
    command.args(["bash", "-c", &script, "bash"]);
    let out = command.stdin(Stdio::null()).output().expect("unshare runs");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{page}:\n{said}");
    assert!(said.contains("all blocks have run"), "{said}");
    said
}

/// The folders of the clean system and of the wheels; or why there are none.
fn prepared() -> Result<(PathBuf, PathBuf), &'static str> {
    if std::fs::metadata("/proc/self").expect("proc").uid() != 0 {
        return Err("only root can change into the folder of another system");
    }
    if !Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]).status().is_ok_and(|status| status.success()) {
        return Err("this machine does not allow namespaces of mounts and processes");
    }
    let root = std::env::var_os("WEBLOOM_CLEAN_ROOT").ok_or("WEBLOOM_CLEAN_ROOT does not name the folder of a clean system")?;
    let wheels = std::env::var_os("WEBLOOM_WHEELS").ok_or("WEBLOOM_WHEELS does not name a folder of wheels")?;
    Ok((PathBuf::from(root), PathBuf::from(wheels)))
}

#[test]
fn the_tutorials_can_be_followed_on_a_clean_system() {
    let (root, wheels) = match prepared() {
        Ok(folders) => folders,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    journey_within(Duration::from_secs(600), async move {
        let site = Site::serve(30);
        let home = tempfile::tempdir_in("/tmp").expect("a folder");
        let path = home.path().to_owned();
        let mut stage = Stage::new(&path, &site.url);
        for folder in ["logs", "wheels"] {
            std::fs::create_dir(path.join(folder)).expect("a folder");
        }
        for wheel in std::fs::read_dir(wheels).expect("wheels") {
            let wheel = wheel.expect("a wheel");
            std::fs::copy(wheel.path(), path.join("wheels").join(wheel.file_name())).expect("copied");
        }
        let said = actix_web::rt::task::spawn_blocking(move || {
            let begin = Instant::now();
            let mut said = String::new();
            for page in PAGES {
                stage.installs = true;
                let begins = script(page, &stage).contains("pip install --find-links wheels wheels/webloom_server-");
                assert!(begins, "{page} begins with an installation");
                // Once is enough: the second and the third page would do the same again.
                stage.installs = page == PAGES[0];
                said += &run(&root, page, &stage, &path);
                println!("{page} is done after {:.1?}", begin.elapsed());
            }
            let lines = |output: &str| std::fs::read_to_string(path.join(output)).expect("an output").lines().count();
            assert!(lines("pages.jsonl") > 1, "the start page and those that it leads to");
            assert_eq!(lines("site.jsonl"), 3, "all pages of the small site");
            said
        })
        .await
        .expect("it runs");
        assert!(said.contains("Successfully installed") && said.contains("webloom-server"), "{said}");
        assert!(said.contains("fired"), "the ledger of the schedule shows a fire: {said}");
    });
}
