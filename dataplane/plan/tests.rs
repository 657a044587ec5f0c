//! Properties of planning.
