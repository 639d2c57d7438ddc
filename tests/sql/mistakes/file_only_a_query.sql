SELECT id FROM shop.sales
