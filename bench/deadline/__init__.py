"""The evening of a deadline: thousands of people submit within minutes, while parts of the server die."""
