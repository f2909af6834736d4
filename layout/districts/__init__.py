"""Star packing of large graphs in districts of near vertices, which are packed by themselves.

`borders` divides the vectors, `inside` finds the edges within a district, `order` packs them. Imports `ffd`,
`kmeans_pages`, `order`, `star` and `units`.
"""
