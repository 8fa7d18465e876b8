module github.com/tenurelock/tenure/sqlitestore

go 1.26.0

require (
	github.com/tenurelock/tenure v0.1.0
	modernc.org/sqlite v1.60.0
)
