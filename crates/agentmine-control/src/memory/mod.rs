//! The memory of a project: operations, and its files.

mod file;
mod records;
mod transfer;

pub use records::{
    MemoryChange, MemoryFields, MemoryList, MemoryPreview, MemoryQuery, NewMemory, ProjectMemory,
    add, get, list, markdown, preview, update,
};
pub use transfer::{
    Exported, Imported, MEMORY_FOLDER, Overwrite, Transfer, TransferState, export, import,
};
