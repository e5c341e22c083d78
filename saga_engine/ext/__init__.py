"""Features that stand beside the kernel, a folder each. No room imports one: ``plan.words`` finds a word by name."""
