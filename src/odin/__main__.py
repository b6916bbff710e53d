import sys

from odin.cli import main

sys.exit(main())
