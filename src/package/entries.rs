//! What a package may hold: names that stay within, sizes within bounds, links that lead to what is within.

use super::refusal;
use crate::protocol::application::{ProgramError, ProgramErrorKind};
use std::collections::{HashMap, HashSet};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

pub(super) const MOST_ENTRIES: usize = 20_000;
const MOST_PATH: usize = 1_024;
const MOST_NAME: usize = 255;
const MOST_DEPTH: usize = 32;
/// Unpacked bytes for each packed one; deflate itself reaches 1,032.
const MOST_RATIO: u64 = 200;
/// Below this many bytes the ratio is not checked: a small file of blanks is no attack.
const RATIO_FROM: u64 = 16 << 20;
/// Unpacked bytes for each that a package may have.
const UNPACKED: u64 = 4;
const PIECE: usize = 64 << 10;

/// How much a package may unpack to.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    bytes: u64,
}

impl Bounds {
    /// For a package of `packed` bytes, where one of `most_packed` is allowed.
    #[must_use]
    pub fn new(packed: u64, most_packed: u64) -> Self {
        let by_ratio = packed.saturating_mul(MOST_RATIO).max(RATIO_FROM);
        Self { bytes: most_packed.saturating_mul(UNPACKED).min(by_ratio) }
    }
}

pub(super) fn too_large(message: impl Into<String>) -> ProgramError {
    refusal(ProgramErrorKind::PackageTooLarge, message)
}

pub(super) fn bad(message: impl std::fmt::Display) -> ProgramError {
    refusal(ProgramErrorKind::PackageFormat, format!("the package cannot be read: {message}"))
}

fn is_unsafe(name: &str, why: &str) -> ProgramError {
    refusal(ProgramErrorKind::PackageUnsafe, format!("`{}` {why}", name.escape_debug()))
}

/// The path of an entry below the package's folder; none for the folder itself.
///
/// # Errors
/// It is absolute, or leads out, or is no name that a file can have everywhere.
pub fn relative(name: &str) -> Result<Option<PathBuf>, ProgramError> {
    if name.len() > MOST_PATH || name.contains(|c: char| c.is_control()) {
        return Err(is_unsafe(&name.chars().take(100).collect::<String>(), "is no path that is taken"));
    }
    // Some that make packages on Windows divide names so.
    let name = name.replace('\\', "/");
    let drive = name.as_bytes();
    if name.starts_with('/') || (drive.len() > 1 && drive[1] == b':' && drive[0].is_ascii_alphabetic()) {
        return Err(is_unsafe(&name, "is an absolute path"));
    }
    let mut path = PathBuf::new();
    for component in Path::new(&name).components() {
        match component {
            Component::Normal(part) if part.len() <= MOST_NAME => path.push(part),
            Component::CurDir => {}
            Component::Normal(_) => return Err(is_unsafe(&name, "has too long a name")),
            _ => return Err(is_unsafe(&name, "leads out of the package")),
        }
    }
    if path.components().count() > MOST_DEPTH {
        return Err(is_unsafe(&name, "lies too deep"));
    }
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

/// The entries of a package, and the folders on the way to them: each counts once, and none is named twice.
#[derive(Default)]
pub(super) struct Names {
    is_named_by_path: HashMap<PathBuf, bool>,
    /// Entries that stand for the folder itself.
    own: usize,
}

impl Names {
    /// Counts an entry; gives back its path, as [`relative`] does.
    pub fn add(&mut self, name: &str) -> Result<Option<PathBuf>, ProgramError> {
        let path = relative(name)?;
        let Some(path) = path else {
            self.own += 1;
            return self.check().map(|()| None);
        };
        for folder in path.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty()) {
            if self.is_named_by_path.contains_key(folder) {
                break;
            }
            self.is_named_by_path.insert(folder.to_owned(), false);
        }
        if self.is_named_by_path.insert(path.clone(), true) == Some(true) {
            return Err(bad(format!("`{}` is in it twice", path.display())));
        }
        self.check().map(|()| Some(path))
    }

    fn check(&self) -> Result<(), ProgramError> {
        if self.own + self.is_named_by_path.len() > MOST_ENTRIES { Err(too_many()) } else { Ok(()) }
    }
}

pub(super) fn too_many() -> ProgramError {
    too_large(format!("the package has over {MOST_ENTRIES} entries, folders on the way to them among these"))
}

/// Writes the entries of one package. Folders that are named and links come last, so that nothing is ever written through a link.
pub(super) struct Entries<'a> {
    /// None: they are only looked at.
    root: Option<&'a Path>,
    /// Files that were looked at.
    looked_at: HashSet<PathBuf>,
    left: u64,
    names: Names,
    folders: Vec<PathBuf>,
    hard_links: Vec<(PathBuf, PathBuf, String)>,
    symlinks: Vec<(PathBuf, String, String)>,
}

impl<'a> Entries<'a> {
    /// Into this folder, which is new and empty.
    pub fn new(root: &'a Path, bounds: Bounds) -> Self {
        Self { root: Some(root), ..Self::looked_at(bounds) }
    }

    /// Reads them, and writes nothing.
    pub fn looked_at(bounds: Bounds) -> Self {
        Self {
            root: None,
            looked_at: HashSet::new(),
            left: bounds.bytes,
            names: Names::default(),
            folders: Vec::new(),
            hard_links: Vec::new(),
            symlinks: Vec::new(),
        }
    }

    fn next(&mut self, name: &str) -> Result<Option<PathBuf>, ProgramError> {
        self.names.add(name)
    }

    fn parent(&self, path: &Path) -> Result<(), ProgramError> {
        let Some(root) = self.root else { return Ok(()) };
        let parent = root.join(path.parent().unwrap_or(Path::new("")));
        std::fs::create_dir_all(&parent).map_err(|e| written(path, &e))
    }

    pub fn folder(&mut self, name: &str) -> Result<(), ProgramError> {
        // Made at the end: a package of too many folders is refused before one of them is there.
        let path = self.next(name)?;
        self.folders.extend(path);
        Ok(())
    }

    pub fn file(&mut self, name: &str, mode: Option<u32>, content: &mut impl Read) -> Result<(), ProgramError> {
        let Some(path) = self.next(name)? else { return Err(is_unsafe(name, "is no name of a file")) };
        self.parent(&path)?;
        let mut file = match self.root {
            Some(root) => Some(File::create_new(root.join(&path)).map_err(|e| written(&path, &e))?),
            None if self.looked_at.insert(path.clone()) => None,
            None => return Err(written(&path, &ErrorKind::AlreadyExists.into())),
        };
        let mut piece = vec![0; PIECE];
        loop {
            let read = match content.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(bad(e)),
            };
            // Counted as it is unpacked: the sizes that the package states may be wrong.
            self.left = self.left.checked_sub(read as u64).ok_or_else(|| too_large("the package unpacks to too much"))?;
            if let Some(file) = &mut file {
                io::Write::write_all(file, &piece[..read]).map_err(|e| written(&path, &e))?;
            }
        }
        let Some(file) = file else { return Ok(()) };
        // Nothing but the permission to execute: no set-user-id, no file that its owner cannot delete.
        let mode = if mode.is_some_and(|mode| mode & 0o111 != 0) { 0o755 } else { 0o644 };
        file.set_permissions(Permissions::from_mode(mode)).map_err(|e| written(&path, &e))
    }

    pub fn hard_link(&mut self, name: &str, target: &str) -> Result<(), ProgramError> {
        match (self.next(name)?, relative(target)?) {
            (Some(path), Some(to)) => self.hard_links.push((path, to, name.to_owned())),
            _ => return Err(is_unsafe(name, "is a link to a folder")),
        }
        Ok(())
    }

    pub fn symlink(&mut self, name: &str, target: &str) -> Result<(), ProgramError> {
        let Some(path) = self.next(name)? else { return Err(is_unsafe(name, "is no name of a link")) };
        if target.len() > MOST_PATH || target.contains('\0') || Path::new(target).is_absolute() || target.is_empty() {
            return Err(is_unsafe(name, "is a link that leads out of the package"));
        }
        self.symlinks.push((path, target.to_owned(), name.to_owned()));
        Ok(())
    }

    /// Looks where the links would lead, as far as names tell, and whether there is a file at all.
    pub fn finish_look(self) -> Result<(), ProgramError> {
        if self.looked_at.is_empty() {
            return Err(bad("there is no file in it"));
        }
        if let Some((_, _, name)) = self.hard_links.iter().find(|(_, to, _)| !self.looked_at.contains(to)) {
            return Err(is_unsafe(name, "is a link to what is no file of the package"));
        }
        let leads_out = |path: &Path, target: &str| {
            let mut depth = path.components().count() as i64 - 1;
            Path::new(target).components().any(|component| {
                depth += match component {
                    Component::Normal(_) => 1,
                    Component::ParentDir => -1,
                    _ => 0,
                };
                depth < 0
            })
        };
        match self.symlinks.iter().find(|(path, target, _)| leads_out(path, target)) {
            Some((_, _, name)) => Err(is_unsafe(name, "is a link that leads out of the package")),
            None => Ok(()),
        }
    }

    /// Makes the links, and looks where they lead.
    pub fn finish(self) -> Result<(), ProgramError> {
        let Some(root) = self.root else { return self.finish_look() };
        for path in &self.folders {
            std::fs::create_dir_all(root.join(path)).map_err(|e| written(path, &e))?;
        }
        for (path, to, name) in &self.hard_links {
            // There are no symbolic links yet that it could go through.
            if !root.join(to).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                return Err(is_unsafe(name, "is a link to what is no file of the package"));
            }
            self.parent(path)?;
            std::fs::hard_link(root.join(to), root.join(path)).map_err(|e| written(path, &e))?;
        }
        for (path, _, _) in &self.symlinks {
            self.parent(path)?;
        }
        for (path, target, _) in &self.symlinks {
            std::os::unix::fs::symlink(target, root.join(path)).map_err(|e| written(path, &e))?;
        }
        let real = root.canonicalize().map_err(|e| written(root, &e))?;
        for (path, _, name) in &self.symlinks {
            // As the system follows it, through other links too. One that leads to nothing may lead to something later.
            if !root.join(path).canonicalize().is_ok_and(|to| to.starts_with(&real)) {
                return Err(is_unsafe(name, "is a link that leads out of the package, or to nothing"));
            }
        }
        Ok(())
    }

    /// What is neither a file, a folder nor a link.
    pub fn other(&mut self, name: &str) -> Result<(), ProgramError> {
        Err(is_unsafe(name, "is neither a file nor a folder nor a link"))
    }
}

fn written(path: &Path, error: &io::Error) -> ProgramError {
    match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            bad(format!("`{}` is in it twice, or is a file and a folder", path.display()))
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => too_large(format!("there is no room for it on this machine: {error}")),
        _ => refusal(ProgramErrorKind::Spawn, format!("`{}` cannot be unpacked: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within() {
        for (name, path) in [("a", "a"), ("./a/b/", "a/b"), ("a\\b.exe", "a/b.exe"), ("a//b", "a/b"), ("..a/b..", "..a/b..")] {
            assert_eq!(relative(name).expect(name), Some(PathBuf::from(path)), "{name}");
        }
        assert_eq!(relative("./").expect("the folder itself"), None);
        let (long, deep, far) = ("x".repeat(256), "a/".repeat(33), "y/".repeat(600));
        for name in ["/a", "../a", "a/../../b", "a/..", "..", "\\a", "C:\\a", "c:a", "a\0b", "a\nb", "..\\a", &long, &deep, &far] {
            assert_eq!(relative(name).expect_err(name).kind, ProgramErrorKind::PackageUnsafe, "{name}");
        }
    }
}
