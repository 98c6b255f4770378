mod carry;
