module mungo.example/go

go 1.25
