//! What the story tests play: the forge and the model. All else in them is real.

pub mod forge;
pub mod model;
