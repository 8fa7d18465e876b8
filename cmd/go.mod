module github.com/tenurelock/tenure/cmd

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/google/go-cmp v0.7.0
	github.com/lmittmann/tint v1.2.1
	github.com/rogpeppe/go-internal v1.16.0
	github.com/tenurelock/tenure v0.1.0
	github.com/tenurelock/tenure/sqlitestore v0.1.0
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
)
