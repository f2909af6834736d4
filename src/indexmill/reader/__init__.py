"""The native reader: opens index directories, verifies and searches them (`index`), lends its kernels (`kernels`)."""
