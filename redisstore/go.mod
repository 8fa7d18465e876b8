module github.com/tenurelock/tenure/redisstore

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/tenurelock/tenure v0.1.0
)

require golang.org/x/sys v0.47.0 // indirect
