//! `webloom run results`: the results of a run as JSON Lines.

use super::RunRef;
use crate::cli::failure::Failure;
use crate::cli::remote::{Shell, print};
use crate::cli::table::items;
use serde_json::Value;
use std::process::ExitCode;

/// Prints a line of JSON for each result. Blocks are read page by page, because all of them may be large.
pub async fn results(shell: &Shell, run: &RunRef) -> Result<ExitCode, Failure> {
    let id = run.find(shell).await?;
    let path = ["runs", &id, "results"];
    let kind = shell.client.get(&["runs", &id], &[]).await?.value()?["kind"].clone();
    if kind != "block" {
        let lines = shell.client.get_as("application/jsonl", &path, &[]).await?;
        print(lines.text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut cursor = None;
    loop {
        let page = shell.client.get(&path, &[("cursor", cursor)]).await?.value()?;
        for block in items(&page) {
            for result in block["results"].as_array().into_iter().flatten() {
                print(&line(&block["blockId"], result))?;
            }
        }
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// A result with the id of its block.
fn line(block_id: &Value, result: &Value) -> String {
    let mut line = result.clone();
    line["blockId"] = block_id.clone();
    line.to_string()
}
