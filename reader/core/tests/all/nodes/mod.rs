//! Graphs whose nodes hold codes: those of their neighbours, or of their own vectors, which lie in another file.

mod codes;
mod exact;
