from odin.entry import start

start()
