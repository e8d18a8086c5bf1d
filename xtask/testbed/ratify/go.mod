module portolan.dev/testbed/ratify

go 1.26.0

// Built inside a copy of its own source: its go.sum pins what no checksum service answers for any more.
require github.com/ratify-project/ratify v1.4.6
