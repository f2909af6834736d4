module indexmill/examples/search

go 1.19
