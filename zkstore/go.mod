module github.com/tenurelock/tenure/zkstore

go 1.26.0

require github.com/tenurelock/tenure v0.1.0
