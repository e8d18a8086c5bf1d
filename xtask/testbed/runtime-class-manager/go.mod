module portolan.dev/testbed/runtime-class-manager

go 1.26.0

// Built inside a copy of its own source, whose module has the name of another organisation by now.
require github.com/spinkube/runtime-class-manager v0.2.0
