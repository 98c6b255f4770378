//! Where a crawl writes: lines, and perhaps a WARC file.

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

/// Refuses to replace what stands in the files of a crawl, unless it goes on or is told to.
///
/// # Errors
/// A file is there and is not empty, or two outputs are one file.
pub fn check_outputs(options: &CrawlOptions) -> Result<(), CrawlError> {
    if options.output.is_some() && options.output == options.warc {
        return Err(CrawlError::Output("--output and --warc are one file: they need two".to_owned()));
    }
    if options.resume || options.overwrite {
        return Ok(());
    }
    for path in options.output.iter().chain(&options.warc) {
        if path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0) {
            let path = path.display();
            return Err(CrawlError::Output(format!(
                "{path} is there already: --overwrite replaces it, --resume goes on with a crawl that was interrupted"
            )));
        }
    }
    Ok(())
}

impl Outputs {
    /// What the file of lines held when it was opened, if that could be read.
    #[must_use]
    pub fn before(&self) -> Option<&Counts> {
        self.lines.before()
    }

    /// Opens what the options name. To resume, files that are there are gone on with.
    ///
    /// # Errors
    /// One cannot be written, or holds something else.
    pub fn open(options: &CrawlOptions) -> Result<Self, CrawlError> {
        check_outputs(options)?;
        let lines = match &options.output {
            Some(path) => Lines::to_file(path, options.resume)?,
            None => Lines::new(Box::new(io::stdout())),
        };
        let warc = options.warc.as_deref().map(|path| Warc::to_file(path, options.resume)).transpose()?;
        Ok(Self { lines, warc })
    }

    /// Writes only lines, to anything.
    #[must_use]
    pub fn lines_to(out: Box<dyn io::Write>) -> Self {
        Self { lines: Lines::new(out), warc: None }
    }

    /// Writes a page. True if it was not there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, page: &Page, line: &Line) -> io::Result<bool> {
        if let Some(warc) = &mut self.warc {
            warc.write(page)?;
        }
        self.lines.write(line)
    }

    /// Hands all to the system, the pages before their lines: what has a line has its page.
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
