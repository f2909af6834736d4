//! Exact vectors apart from nodes of codes, in vectors.imx (docs/formats/graph.md): where codes leave an answer open, they
//! decide.

mod interval;
mod rerank;

pub(super) use interval::Apart;
pub(super) use rerank::Rerank;
