module github.com/tenurelock/tenure/tenureotel

go 1.26.0
