quit(save = "no")
