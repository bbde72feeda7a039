//! How far an effect has come, by its result.

use super::failure::Failure;
use crate::EffectState;

/// The result of an effect that nobody will finish. Whether it happened is as unknown as before.
pub(super) const SUPERSEDED: &str = r#"{"superseded":true}"#;

/// How far an effect with this result has come.
pub(super) fn state_of(result: Option<String>) -> Result<EffectState, Failure> {
    Ok(match result.as_deref() {
        None | Some(SUPERSEDED) => EffectState::Unsure,
        Some(result) => EffectState::Done(serde_json::from_str(result)?),
    })
}
