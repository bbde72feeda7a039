//! The triggers of tasks that commands asked for.

/// With this begins the trigger of a task that a command asked for; the id of the comment follows.
pub(super) const TRIGGER: &str = "command-";

/// Whether a command began a task with this trigger.
pub(crate) fn is_of_command(trigger: &str) -> bool {
    trigger.starts_with(TRIGGER)
}
