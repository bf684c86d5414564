"""What real model servers do in situations that operators meet, seen through the engines of this product."""
