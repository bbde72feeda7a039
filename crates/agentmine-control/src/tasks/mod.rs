//! What people do with tasks.

mod edit;
mod list;
mod reasons;
mod request;
mod untaken;
mod why;

pub use edit::{TaskCreate, TaskUpdate, create, update};
pub(crate) use list::limit_of;
pub use list::{TaskGet, TaskList, TaskPage, get, list};
pub use reasons::{Reason, Why, reasons};
pub use request::{TaskRequest, cancel, pause, resume, retry};
pub use why::{TaskWhy, why};
