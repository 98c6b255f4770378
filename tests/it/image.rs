//! What stands in the image is enough: the program starts with nothing of this machine but what image/root.sh packed.

use crate::support::api::Api;
use crate::support::process::{Process, WEBLOOM};
use crate::support::{journey, until};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command in that folder as `/`, as the image's user. Who may not change users is root of a namespace of his own.
fn inside(root: &Path, is_root: bool) -> Command {
    let mut command = Command::new(if is_root { "chroot" } else { "unshare" });
    if is_root {
        command.arg("--userspec=65532:65532");
    } else {
        command.args(["--map-root-user", "chroot"]);
    }
    command.arg(root).arg("/usr/bin/webloom").env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
    command
}

#[test]
fn the_image_holds_all_that_the_program_needs() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (image, root) = (folder.path().join("image"), folder.path().join("root"));
        let packed = Command::new("bash").arg("image/root.sh").arg(WEBLOOM).arg(&image).status().expect("bash");
        assert!(packed.success());
        // What a container is made of is the archive, with its owners.
        std::fs::create_dir(&root).expect("a folder");
        let unpacked = Command::new("tar").arg("-xf").arg(image.join("root.tar")).arg("-C").arg(&root).status().expect("tar");
        assert!(unpacked.success());
        let data = std::fs::metadata(root.join("var/lib/webloom")).expect("a folder for the database");
        let is_root = std::fs::metadata("/proc/self").expect("proc").uid() == 0;
        if is_root {
            assert_eq!((data.uid(), data.gid()), (65_532, 65_532));
            let program = std::fs::metadata(root.join("usr/bin/webloom")).expect("the program");
            assert_eq!((program.uid(), program.mode() & 0o7777), (0, 0o755));
        }
        let zones = inside(&root, is_root).args(["job", "next", "0 9 * * *", "--zone", "Europe/Berlin", "--count", "1"]).output();
        let zones = zones.expect("chroot");
        assert!(zones.status.success(), "{}", String::from_utf8_lossy(&zones.stderr));

        let mut broker = inside(&root, is_root);
        broker.args(["broker", "--listen", "127.0.0.1:0", "--database", "/var/lib/webloom/webloom.db"]).stdout(Stdio::piped());
        let mut broker = Process(broker.spawn().expect("the broker starts"));
        let mut lines = BufReader::new(broker.0.stdout.take().expect("piped")).lines();
        let line = lines.next().expect("it says where it listens").expect("a line");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}"));
        let mut agent = inside(&root, is_root);
        let _agent = Process(agent.args(["agent", "--data-dir", "/var/lib/webloom", "--broker", url]).spawn().expect("the agent starts"));
        let api = Api::new(url);
        until("the agent to be there", || async {
            let (_, nodes) = api.get("/api/v1/nodes").await;
            (nodes["items"][0]["isOnline"] == true).then_some(())
        })
        .await;
        assert!(broker.terminate().success());
        assert!(root.join("var/lib/webloom/webloom.db").exists());
    });
}
