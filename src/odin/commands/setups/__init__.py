"""The setups of other coding agents, for `odin migrate`. Each module reads the files of one agent and changes none."""
