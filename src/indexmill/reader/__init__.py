"""The native reader: opens index directories, verifies and searches them (`index`), and lends its kernels (`kernels`)."""
