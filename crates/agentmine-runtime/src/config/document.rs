//! Reads a YAML document of its own into a type, with all faults and their places.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::check::check;
use super::fault::SettingFault;
use super::tree::{self, ConfigPlace, Node};

/// A document and where its values are.
#[derive(Debug)]
pub struct Document<T> {
    /// What it holds.
    pub value: T,
    /// The values with their places, for faults that the type does not show.
    pub tree: Node,
}

/// Reads a document; `name` is the file in its faults.
///
/// # Errors
/// All faults: of the syntax, unknown and duplicate keys, wrong types, missing keys.
pub fn document<T: DeserializeOwned + JsonSchema>(
    name: &str,
    text: &str,
) -> Result<Document<T>, Vec<SettingFault>> {
    let name = name.into();
    let tree = tree::parse(&name, text).map_err(|(place, message)| {
        let seen = message.split(" at line").next().unwrap_or(&message);
        vec![SettingFault::new(&place, "", seen, "valid YAML")]
    })?;
    let schema = schemars::schema_for!(T).to_value();
    let mut faults = Vec::new();
    let checked = check(&schema, &tree, &mut faults);
    match serde_json::from_value(checked) {
        Ok(value) if faults.is_empty() => Ok(Document { value, tree }),
        Err(error) if faults.is_empty() => {
            let place = ConfigPlace::File {
                name,
                line: 0,
                column: 0,
            };
            Err(vec![SettingFault::new(
                &place,
                "",
                error.to_string(),
                "a complete document",
            )])
        }
        Ok(_) | Err(_) => Err(faults),
    }
}
