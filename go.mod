module github.com/tenurelock/tenure

go 1.26.0
