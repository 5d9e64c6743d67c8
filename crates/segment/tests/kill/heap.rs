pub fn heap() {}
