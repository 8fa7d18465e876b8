module github.com/tenurelock/tenure/adapters/recipes

go 1.26.0
