//! The stdio MCP servers that run inside a sandbox. So far: the text editor.
//!
//! [`editor`] is the editor itself, without any protocol; [`server`] offers it as the one tool
//! `text_editor`, with the name, parameters and result envelope that agents already know.

pub mod editor;
pub mod server;

pub use editor::{EditError, Editor, Reply};
pub use server::TextEditorServer;
