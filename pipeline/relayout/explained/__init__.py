"""What a layout or a rebuild of an index would save, told without writing it: the verb `explain`."""
