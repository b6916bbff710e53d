import sys

from odin.entry import main

sys.exit(main())
