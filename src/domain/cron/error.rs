//! What is wrong with an expression, and where.

/// An expression that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{detail}", place(field, *position, detail))]
pub struct InvalidCron {
    /// The field that is wrong, as `hour` or `day of month`; empty if it is the expression as a whole.
    pub field: &'static str,
    /// Characters before the fault.
    pub position: usize,
    /// The expression, cut if it is too long.
    pub text: String,
    /// What is wrong, in plain words.
    pub detail: String,
}

/// Where it is, for a text that does not name the field itself.
fn place(field: &str, position: usize, detail: &str) -> String {
    let is_named = detail.strip_prefix("the ").is_some_and(|rest| rest.starts_with(field));
    if field.is_empty() || is_named { String::new() } else { format!("{field} field, character {}: ", position + 1) }
}

impl InvalidCron {
    /// Two lines: the expression, and a caret below the fault.
    #[must_use]
    pub fn pointer(&self) -> String {
        // A tab would set the caret off.
        let shown: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{shown}\n{}^", " ".repeat(self.position))
    }
}
