"""Files that Read does not give as their lines: images, PDFs, notebooks."""
