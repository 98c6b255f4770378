//! The error for an invalid expression, with its position.

/// An invalid expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{detail}", place(field, *position, detail))]
pub struct InvalidCron {
    /// The invalid field, as `hour` or `day of month`; empty for the expression as a whole.
    pub field: &'static str,
    /// Number of characters before the error.
    pub position: usize,
    /// The expression, cut if it is too long.
    pub text: String,
    /// What is wrong, for people.
    pub detail: String,
}

/// The position, for a text that does not name the field itself.
fn place(field: &str, position: usize, detail: &str) -> String {
    let is_named = detail.strip_prefix("the ").is_some_and(|rest| rest.starts_with(field));
    if field.is_empty() || is_named { String::new() } else { format!("{field} field, character {}: ", position + 1) }
}

impl InvalidCron {
    /// Two lines: the expression, and a caret below the error.
    #[must_use]
    pub fn pointer(&self) -> String {
        // A tab would misplace the caret.
        let shown: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{shown}\n{}^", " ".repeat(self.position))
    }
}
