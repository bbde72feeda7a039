//! What people do with tasks.

mod edit;
mod list;
mod request;
mod why;

pub use edit::{TaskCreate, TaskUpdate, create, update};
pub use list::{TaskGet, TaskList, TaskPage, get, list};
pub(crate) use list::{details, limit_of};
pub use request::{TaskRequest, cancel, pause, resume, retry};
pub use why::{Reason, Why, why};
