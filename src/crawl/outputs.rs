//! The outputs of a crawl: lines, and optionally a WARC file.

use super::error::CrawlError;
use super::lines::{Line, Lines};
use super::options::CrawlOptions;
use super::summary::Counts;
use super::warc::Warc;
use crate::sdk::Page;
use std::io;

/// The files of a crawl.
pub struct Outputs {
    lines: Lines,
    warc: Option<Warc>,
}

/// Rejects outputs in a folder that does not exist, and those that would replace existing files, unless the crawl is resumed or overwriting is
/// allowed.
///
/// # Errors
/// There is no such folder, a file exists and is not empty, or two outputs are the same file.
pub fn check_outputs(options: &CrawlOptions) -> Result<(), CrawlError> {
    if options.output.is_some() && options.output == options.warc {
        return Err(CrawlError::Output("--output and --warc must be different files".to_owned()));
    }
    let folders = options.output.iter().chain(&options.warc).filter_map(|path| path.parent());
    if let Some(folder) = folders.into_iter().find(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return Err(CrawlError::Output(format!("there is no folder {}: make it first", folder.display())));
    }
    if options.resume || options.overwrite {
        return Ok(());
    }
    for path in options.output.iter().chain(&options.warc) {
        if path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0) {
            let path = path.display();
            return Err(CrawlError::Output(format!(
                "{path} already exists: --overwrite replaces it, --resume continues an interrupted crawl"
            )));
        }
    }
    Ok(())
}

impl Outputs {
    /// Counts of the file of lines when it was opened, if it could be read.
    #[must_use]
    pub fn before(&self) -> Option<&Counts> {
        self.lines.before()
    }

    /// Opens the files that the options name. On resume, existing files are continued.
    ///
    /// # Errors
    /// A file cannot be written, or has other content.
    pub fn open(options: &CrawlOptions) -> Result<Self, CrawlError> {
        check_outputs(options)?;
        let lines = match &options.output {
            Some(path) => Lines::to_file(path, options.resume)?,
            None => Lines::new(Box::new(io::stdout())),
        };
        let warc = options.warc.as_deref().map(|path| Warc::to_file(path, options.resume)).transpose()?;
        Ok(Self { lines, warc })
    }

    /// Writes only lines, to any output.
    #[must_use]
    #[cfg(test)]
    pub fn lines_to(out: Box<dyn io::Write>) -> Self {
        Self { lines: Lines::new(out), warc: None }
    }

    /// Writes a page. Returns whether it is new.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, page: &Page, line: &Line) -> io::Result<bool> {
        if let Some(warc) = &mut self.warc {
            warc.write(page)?;
        }
        self.lines.write(line)
    }

    /// Passes everything to the operating system, pages before their lines: a line always has its page.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(warc) = &mut self.warc {
            warc.flush()?;
        }
        self.lines.flush()
    }
}
