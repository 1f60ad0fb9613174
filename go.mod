module aduana

go 1.26
